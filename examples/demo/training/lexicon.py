"""The word lists the conversation generator draws from: plain facts and names.

The order of every list is part of the data: a seed draws positions, so adding, removing
or moving a word changes every conversation that follows.
"""

# country (with its article, where it has one) | capital | continent
_COUNTRIES = """
Afghanistan|Kabul|Asia
Albania|Tirana|Europe
Algeria|Algiers|Africa
Andorra|Andorra la Vella|Europe
Angola|Luanda|Africa
Argentina|Buenos Aires|South America
Armenia|Yerevan|Asia
Australia|Canberra|Oceania
Austria|Vienna|Europe
Azerbaijan|Baku|Asia
the Bahamas|Nassau|North America
Bahrain|Manama|Asia
Bangladesh|Dhaka|Asia
Barbados|Bridgetown|North America
Belarus|Minsk|Europe
Belgium|Brussels|Europe
Belize|Belmopan|North America
Benin|Porto-Novo|Africa
Bhutan|Thimphu|Asia
Bolivia|Sucre|South America
Bosnia and Herzegovina|Sarajevo|Europe
Botswana|Gaborone|Africa
Brazil|Brasilia|South America
Brunei|Bandar Seri Begawan|Asia
Bulgaria|Sofia|Europe
Burkina Faso|Ouagadougou|Africa
Burundi|Gitega|Africa
Cambodia|Phnom Penh|Asia
Cameroon|Yaounde|Africa
Canada|Ottawa|North America
Cape Verde|Praia|Africa
Chad|N'Djamena|Africa
Chile|Santiago|South America
China|Beijing|Asia
Colombia|Bogota|South America
Comoros|Moroni|Africa
Costa Rica|San Jose|North America
Croatia|Zagreb|Europe
Cuba|Havana|North America
Cyprus|Nicosia|Europe
the Czech Republic|Prague|Europe
Denmark|Copenhagen|Europe
Djibouti|Djibouti City|Africa
Dominica|Roseau|North America
the Dominican Republic|Santo Domingo|North America
East Timor|Dili|Asia
Ecuador|Quito|South America
Egypt|Cairo|Africa
El Salvador|San Salvador|North America
Equatorial Guinea|Malabo|Africa
Eritrea|Asmara|Africa
Estonia|Tallinn|Europe
Eswatini|Mbabane|Africa
Ethiopia|Addis Ababa|Africa
Fiji|Suva|Oceania
Finland|Helsinki|Europe
France|Paris|Europe
Gabon|Libreville|Africa
the Gambia|Banjul|Africa
Georgia|Tbilisi|Asia
Germany|Berlin|Europe
Ghana|Accra|Africa
Greece|Athens|Europe
Grenada|Saint George's|North America
Guatemala|Guatemala City|North America
Guinea|Conakry|Africa
Guinea-Bissau|Bissau|Africa
Guyana|Georgetown|South America
Haiti|Port-au-Prince|North America
Honduras|Tegucigalpa|North America
Hungary|Budapest|Europe
Iceland|Reykjavik|Europe
India|New Delhi|Asia
Indonesia|Jakarta|Asia
Iran|Tehran|Asia
Iraq|Baghdad|Asia
Ireland|Dublin|Europe
Israel|Jerusalem|Asia
Italy|Rome|Europe
Ivory Coast|Yamoussoukro|Africa
Jamaica|Kingston|North America
Japan|Tokyo|Asia
Jordan|Amman|Asia
Kazakhstan|Astana|Asia
Kenya|Nairobi|Africa
Kiribati|South Tarawa|Oceania
Kosovo|Pristina|Europe
Kuwait|Kuwait City|Asia
Kyrgyzstan|Bishkek|Asia
Laos|Vientiane|Asia
Latvia|Riga|Europe
Lebanon|Beirut|Asia
Lesotho|Maseru|Africa
Liberia|Monrovia|Africa
Libya|Tripoli|Africa
Liechtenstein|Vaduz|Europe
Lithuania|Vilnius|Europe
Luxembourg|Luxembourg City|Europe
Madagascar|Antananarivo|Africa
Malawi|Lilongwe|Africa
Malaysia|Kuala Lumpur|Asia
the Maldives|Male|Asia
Mali|Bamako|Africa
Malta|Valletta|Europe
Mauritania|Nouakchott|Africa
Mauritius|Port Louis|Africa
Mexico|Mexico City|North America
Micronesia|Palikir|Oceania
Moldova|Chisinau|Europe
Monaco|Monaco|Europe
Mongolia|Ulaanbaatar|Asia
Montenegro|Podgorica|Europe
Morocco|Rabat|Africa
Mozambique|Maputo|Africa
Myanmar|Naypyidaw|Asia
Namibia|Windhoek|Africa
Nauru|Yaren|Oceania
Nepal|Kathmandu|Asia
the Netherlands|Amsterdam|Europe
New Zealand|Wellington|Oceania
Nicaragua|Managua|North America
Niger|Niamey|Africa
Nigeria|Abuja|Africa
North Korea|Pyongyang|Asia
North Macedonia|Skopje|Europe
Norway|Oslo|Europe
Oman|Muscat|Asia
Pakistan|Islamabad|Asia
Palau|Ngerulmud|Oceania
Panama|Panama City|North America
Papua New Guinea|Port Moresby|Oceania
Paraguay|Asuncion|South America
Peru|Lima|South America
the Philippines|Manila|Asia
Poland|Warsaw|Europe
Portugal|Lisbon|Europe
Qatar|Doha|Asia
Romania|Bucharest|Europe
Russia|Moscow|Europe
Rwanda|Kigali|Africa
Saint Lucia|Castries|North America
Samoa|Apia|Oceania
San Marino|San Marino|Europe
Saudi Arabia|Riyadh|Asia
Senegal|Dakar|Africa
Serbia|Belgrade|Europe
Seychelles|Victoria|Africa
Sierra Leone|Freetown|Africa
Singapore|Singapore|Asia
Slovakia|Bratislava|Europe
Slovenia|Ljubljana|Europe
the Solomon Islands|Honiara|Oceania
Somalia|Mogadishu|Africa
South Africa|Pretoria|Africa
South Korea|Seoul|Asia
South Sudan|Juba|Africa
Spain|Madrid|Europe
Sri Lanka|Colombo|Asia
Sudan|Khartoum|Africa
Suriname|Paramaribo|South America
Sweden|Stockholm|Europe
Switzerland|Bern|Europe
Syria|Damascus|Asia
Taiwan|Taipei|Asia
Tajikistan|Dushanbe|Asia
Tanzania|Dodoma|Africa
Thailand|Bangkok|Asia
Togo|Lome|Africa
Tonga|Nuku'alofa|Oceania
Trinidad and Tobago|Port of Spain|North America
Tunisia|Tunis|Africa
Turkey|Ankara|Asia
Turkmenistan|Ashgabat|Asia
Tuvalu|Funafuti|Oceania
Uganda|Kampala|Africa
Ukraine|Kyiv|Europe
the United Arab Emirates|Abu Dhabi|Asia
the United Kingdom|London|Europe
the United States|Washington|North America
Uruguay|Montevideo|South America
Uzbekistan|Tashkent|Asia
Vanuatu|Port Vila|Oceania
Vatican City|Vatican City|Europe
Venezuela|Caracas|South America
Vietnam|Hanoi|Asia
Yemen|Sanaa|Asia
Zambia|Lusaka|Africa
Zimbabwe|Harare|Africa
"""
COUNTRIES = [tuple(line.split("|")) for line in _COUNTRIES.strip().split("\n")]

NAMES = """Anna Marco Julia David Sofia Peter Maria Thomas Laura Paul Emma Lucas Olivia Noah Mia
Leo Clara Felix Nina Oscar Alice Bob Carol Daniel Eva Frank Grace Henry Irene Jack Karen Liam Martha
Nathan Oliver Paula Quentin Rosa Simon Tina Ulrich Vera Walter Xenia Yusuf Zoe Ahmed Fatima Hiroshi
Yuki Chen Wei Priya Arjun Ravi Leila Omar Amara Kofi Ingrid Lars Astrid Bjorn Pierre Camille Antoine
Giulia Matteo Chiara Luca Elena Diego Carmen Pablo Ines Joao Rafael Marta Tomas Katya Ivan Olga Boris
Natasha Dmitri Aisha Hassan Samir Nadia Sarah James Emily Michael Rachel Robert Linda Steven Diana
Victor Monica George Helen Kevin Susan Brian Nancy Adam Ruth Martin Alex Sam Max Ben Tom Tim Lucy
Amy Kate Jane John Mary Hugo Iris Ivy Jonas Lena Mila Nora Otto Ralph Stella Theo Uma Wendy""".split()

CITIES = """Paris Rome London Berlin Madrid Lisbon Vienna Prague Dublin Oslo Athens Warsaw Milan Turin
Naples Venice Florence Munich Hamburg Lyon Nice Boston Chicago Seattle Denver Austin Dallas Miami
Toronto Montreal Vancouver Sydney Melbourne Tokyo Osaka Kyoto Seoul Mumbai Delhi Cairo Nairobi Lagos
Lima Bogota Quito Santiago Geneva Zurich Basel Porto Seville Barcelona Valencia Krakow Budapest
Stockholm Helsinki Copenhagen Amsterdam Rotterdam Brussels Antwerp Istanbul Ankara Moscow Kyiv
Bangkok Hanoi Manila Jakarta Singapore Beijing Shanghai Dubai Doha Tunis""".split()

JOBS = """doctor nurse teacher engineer lawyer chef pilot farmer writer painter singer designer plumber
baker barber dentist architect gardener scientist mechanic waiter librarian journalist carpenter
electrician programmer translator accountant photographer firefighter""".split()

# singular, plural, product category
_PRODUCTS = """
lamp|lamps|furniture
chair|chairs|furniture
table|tables|furniture
desk|desks|furniture
sofa|sofas|furniture
bed|beds|furniture
shelf|shelves|furniture
wardrobe|wardrobes|furniture
bookcase|bookcases|furniture
stool|stools|furniture
phone|phones|electronics
laptop|laptops|electronics
tablet|tablets|electronics
camera|cameras|electronics
keyboard|keyboards|electronics
mouse|mice|electronics
monitor|monitors|electronics
printer|printers|electronics
speaker|speakers|electronics
charger|chargers|electronics
headphone|headphones|electronics
television|televisions|electronics
shirt|shirts|clothing
jacket|jackets|clothing
hat|hats|clothing
scarf|scarves|clothing
sweater|sweaters|clothing
dress|dresses|clothing
coat|coats|clothing
skirt|skirts|clothing
sock|socks|clothing
glove|gloves|clothing
apple|apples|food
orange|oranges|food
banana|bananas|food
pizza|pizzas|food
sandwich|sandwiches|food
cake|cakes|food
cookie|cookies|food
potato|potatoes|food
tomato|tomatoes|food
cheese|cheeses|food
novel|novels|books
dictionary|dictionaries|books
cookbook|cookbooks|books
textbook|textbooks|books
atlas|atlases|books
comic|comics|books
doll|dolls|toys
puzzle|puzzles|toys
kite|kites|toys
teddy bear|teddy bears|toys
toy train|toy trains|toys
board game|board games|toys
ball|balls|sports
racket|rackets|sports
bicycle|bicycles|sports
helmet|helmets|sports
skateboard|skateboards|sports
surfboard|surfboards|sports
tent|tents|sports
hammer|hammers|tools
drill|drills|tools
saw|saws|tools
screwdriver|screwdrivers|tools
wrench|wrenches|tools
ladder|ladders|tools
"""
PRODUCTS = [tuple(line.split("|")) for line in _PRODUCTS.strip().split("\n")]

COLOURS = """red blue green yellow purple orange pink black white brown grey turquoise violet gold
silver""".split()
PETS = "dog cat rabbit parrot hamster horse turtle".split()
PETNAMES = """Rex Luna Bella Milo Rocky Coco Daisy Buddy Charlie Molly Simba Nala Oreo Pepper Ginger
Shadow Lucky Tiger Fluffy Snowy""".split()

# numbers that may be written out, by value
NUMWORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
            "eleven", "twelve"]

# adjectives of good, bad and neutral reviews, and what the reviews are about
POS_ADJ = """great excellent wonderful fantastic amazing brilliant superb lovely perfect delightful
outstanding awesome beautiful impressive terrific marvelous enjoyable splendid charming exceptional
incredible fabulous good nice pleasant""".split()
NEG_ADJ = """terrible awful horrible bad poor disappointing dreadful boring useless broken dirty rude
ugly annoying pathetic mediocre unpleasant disgusting worthless unreliable slow noisy overpriced
frustrating lousy""".split()
NEU_ADJ = """average ordinary okay acceptable standard normal typical usual fair plain""".split()

THINGS = """movie film book hotel restaurant phone laptop service food staff room product game show
concert album camera coffee pizza story delivery app website battery screen design music museum beach
flight meal breakfast headset printer jacket sofa course lesson trip tour acting plot soup dessert
wine bar store support""".split()
